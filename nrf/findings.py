"""What a check says: each finding comes from one small named rule."""

from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]


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
        return f"{where}{self.message}" + (f"; {self.remedy}" if self.remedy else "")

    def to_json(self) -> dict[str, str]:
        """A plain dictionary for `--json`."""
        return asdict(self)


def errors(findings: list[Finding]) -> list[Finding]:
    """Only those that forbid to go on."""
    return [finding for finding in findings if finding.severity == "error"]
