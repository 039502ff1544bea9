"""Which scripts, broken on purpose, must the model or the history checker find out?

Each mutant says what it breaks and how: a text of a file of the scripts, and what is read there
instead. A script that changes takes its mutants along: a text has to be there exactly once. See
`proof.killing`.
"""

from __future__ import annotations

from proof.mutants import (
    claiming,
    leases,
    mending,
    operating,
    publishing,
    scheduling,
    settling,
    wide,
)
from proof.mutants.mutant import Mutant

__all__ = ["MUTANTS", "Mutant"]

MUTANTS: tuple[Mutant, ...] = (
    *publishing.MUTANTS,
    *claiming.MUTANTS,
    *settling.MUTANTS,
    *leases.MUTANTS,
    *scheduling.MUTANTS,
    *wide.MUTANTS,
    *operating.MUTANTS,
    *mending.MUTANTS,
)
