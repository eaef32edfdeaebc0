"""One finding of ``kvps doctor``."""

from __future__ import annotations

from dataclasses import dataclass

from kvpacket_store.types import Report

__all__ = ["Check"]


@dataclass(frozen=True, slots=True)
class Check(Report):
    """One finding; ``level`` is ``error``, ``warning`` or ``info``, ``remedy`` what to change."""

    name: str
    level: str
    ok: bool
    detail: str
    remedy: str | None = None
    exit_code: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the contract's fields."""
        return {
            "name": self.name,
            "level": self.level,
            "ok": self.ok,
            "detail": self.detail,
            "remedy": self.remedy,
        }
