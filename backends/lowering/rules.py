"""How the limits of a chip are written: one small function per limit, named after what it demands."""

from collections.abc import Callable, Iterator
from typing import Generic, ParamSpec

from nrf.findings import Finding, Severity

P = ParamSpec("P")
Found = Iterator[tuple[str, str, str]]  # node, message with figure and limit, remedy


class Rules(Generic[P]):
    """Rules that look at the same thing: a graph, a layer, ...

    >>> GRAPH = Rules[[Graph, Target]]()
    >>> @GRAPH.rule("error")
    ... def reset_goes_to_zero(graph: Graph, target: Target) -> Found:
    ...     if graph.contract.reset == "subtract":
    ...         yield "", "the contract resets by subtraction", "train with reset zero"
    >>> GRAPH.findings(graph, target)
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
            Finding(look.__name__, severity, *found)
            for severity, look in self._rules
            for found in look(*args, **kwargs)
        ]
