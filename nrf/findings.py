"""What a check says: each finding comes from one small named rule, a function named after what it demands."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, ParamSpec

from nrf.errors import INDENT, InputError, printable

Severity = Literal["error", "warning", "note"]
P = ParamSpec("P")
Found = Iterator[tuple[str, str, str]]  # node, message with figure and limit, remedy


@dataclass(frozen=True)
class Finding:
    """One thing that a rule found: where, what figure against what limit, and a way out.

    >>> print(Finding("stride", "error", "conv2", "stride is 3, the chip has 1, 2, 4", "use stride 2"))
    node 'conv2': stride is 3, the chip has 1, 2, 4; use stride 2
    """

    rule: str
    severity: Severity
    node: str  # the node, or "a -> b" for an edge; "" for the whole graph
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        where = f"edge {self.node}: " if "->" in self.node else f"node '{self.node}': " if self.node else ""
        return printable(f"{where}{self.message}" + (f"; {self.remedy}" if self.remedy else ""))


def errors(findings: list[Finding]) -> list[Finding]:
    """Only those that forbid to go on."""
    return [finding for finding in findings if finding.severity == "error"]


def refuse_errors(findings: list[Finding], name: str) -> None:
    """Raise one InputError that names every finding that forbids to go on; `name` is the graph's."""
    if refused := errors(findings):
        text = INDENT.join(f"{name}: {finding}" for finding in refused)
        raise InputError(text, tuple(finding.rule for finding in refused))


class Rules(Generic[P]):
    """Rules that look at the same thing: a graph, a layer, ...

    >>> LIMITS = Rules[[int]]()
    >>> @LIMITS.rule("error")
    ... def stride_is_small(stride: int) -> Found:
    ...     if stride > 8:
    ...         yield "conv1", f"stride is {stride}, at most 8 is supported", "pool instead"
    >>> print(LIMITS.findings(9)[0])
    node 'conv1': stride is 9, at most 8 is supported; pool instead
    """

    def __init__(self) -> None:
        self._rules: list[tuple[Severity, Callable[P, Found]]] = []

    def rule(self, severity: Severity) -> Callable[[Callable[P, Found]], Callable[P, Found]]:
        """Add a rule whose findings are this severe."""

        def add(function: Callable[P, Found]) -> Callable[P, Found]:
            self._rules.append((severity, function))
            return function

        return add

    def findings(self, *args: P.args, **kwargs: P.kwargs) -> list[Finding]:
        """What all rules find; none stops the others."""
        return [
            Finding(rule.__name__, severity, *finding)
            for severity, rule in self._rules
            for finding in rule(*args, **kwargs)
        ]
