"""How likely the small model errs, told from the text alone: examples, leakage check, net, tiers, robustness."""

from rheostat.lab.difficulty.examples import SIMPLE, TEXT, WORDS, Examples, from_texts, read_examples
from rheostat.lab.difficulty.leak import LeakError, check_leaks, check_unseen, without_repeats
from rheostat.lab.difficulty.net import GRID, Chosen, Net, Setting, choose, fit_net, save_net
from rheostat.lab.difficulty.pseudo import pseudo_difficulty
from rheostat.lab.difficulty.robust import Flips, edited, flips, margin_for, with_edits
from rheostat.lab.difficulty.tiers import Agreement, agreement, outcome_cuts, quantile_cuts, tier_errors, tiers_form

__all__ = [
    "GRID",
    "SIMPLE",
    "TEXT",
    "WORDS",
    "Agreement",
    "Chosen",
    "Examples",
    "Flips",
    "LeakError",
    "Net",
    "Setting",
    "agreement",
    "check_leaks",
    "check_unseen",
    "choose",
    "edited",
    "fit_net",
    "flips",
    "from_texts",
    "margin_for",
    "outcome_cuts",
    "pseudo_difficulty",
    "quantile_cuts",
    "read_examples",
    "save_net",
    "tier_errors",
    "tiers_form",
    "with_edits",
    "without_repeats",
]
