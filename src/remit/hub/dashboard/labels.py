"""Labels and explanations for verdicts, denial codes, states and faults, as tables.

Every color is accompanied by a sign and a word, for readers who cannot see colors. Codes without a label are shown as
they are.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from remit.claims.receipt import Verdict


class Badge(NamedTuple):
    """A word with a sign and a tone, which is its color."""

    word: str
    sign: str
    tone: str


class Meaning(NamedTuple):
    """The meaning of a denial code: a short title, and one sentence."""

    title: str
    sentence: str


VERDICTS: Final[Mapping[Verdict, Badge]] = {
    "compliant": Badge("PERMIT", "✓", "permit"),
    "violation": Badge("DENY", "✕", "deny"),
    "insufficient_evidence": Badge("UNKNOWN EVIDENCE", "?", "unknown"),
}
# Receipts of findings: of actions that bypassed a decision. They deny nothing.
FINDINGS: Final[Mapping[str, Badge]] = {
    "denied_but_run": Badge("BYPASSED", "!", "broken"),
    "run_unasked": Badge("BYPASSED", "!", "broken"),
    "coverage_gap": Badge("GAP FOUND", "!", "broken"),
    "enforcement_gap": Badge("GAP FOUND", "!", "broken"),
    "coverage_unproven": Badge("NOT PROVEN", "?", "unknown"),
}
# Receipts that decide on no call: an outcome, a delegation, a change of state.
RECORDED: Final = Badge("RECORDED", "·", "plain")
NOT_GENUINE: Final = Badge("NOT GENUINE", "!", "broken")

# By the state of a session, or by the denial code of its calls while it is active.
STATES: Final[Mapping[str, Badge]] = {
    "active": Badge("Active", "●", "permit"),
    "ended": Badge("Ended", "■", "plain"),
    "expired": Badge("Expired", "○", "plain"),
    "revoked": Badge("Revoked", "✕", "deny"),
    "chain_broken": Badge("Quarantined", "!", "broken"),
    "duration_exceeded": Badge("Expired", "○", "plain"),
    "kill_switch": Badge("Stopped", "✕", "deny"),
    "protection_tampered": Badge("Tampered with", "!", "broken"),
    "passport_revoked": Badge("Revoked", "✕", "deny"),
    "session_revoked": Badge("Revoked", "✕", "deny"),
    "session_ended": Badge("Ended", "■", "plain"),
    "restored": Badge("From a backup", "■", "plain"),
}

PUBLIC_REASONS: Final[Mapping[str, str]] = {
    "policy_denied": "Policy",
    "budget_exhausted": "Budget",
    "insufficient_evidence": "Evidence",
    "revoked": "Revoked",
    "chain_invalid": "Chain",
}

MEANINGS: Final[Mapping[str, Meaning]] = {
    "tool_forbidden": Meaning("Forbidden tool", "The passport forbids this tool by name."),
    "tool_not_allowed": Meaning(
        "Tool not on the list", "The passport does not list this tool, and what is not listed is not allowed."
    ),
    "out_of_scope": Meaning(
        "Outside the scope",
        "The call would have touched a file, a folder or an address outside of the passport's resource scope.",
    ),
    "side_effect_not_allowed": Meaning(
        "Kind of effect not allowed",
        "The call would have changed or sent something in a way that the passport does not allow.",
    ),
    "engine_denied": Meaning(
        "Refused by a further policy", "A policy beside the passport, such as a Cedar rule, said no."
    ),
    "engine_failed": Meaning(
        "Policy engine failed", "A policy engine failed or was too slow, and a missing answer never means yes."
    ),
    "dangerous_effect": Meaning(
        "Dangerous command",
        "The command would have raised privileges, wiped something vital, run a fresh download or read credentials.",
    ),
    "secret_target": Meaning(
        "Aimed at a secret", "Something would have been written or sent to a place that is named like a secret."
    ),
    "governance_guarded": Meaning(
        "Aimed at Remit itself",
        "The call would have changed what puts this agent under Remit, read what it keeps, or started another agent.",
    ),
    "denied_but_run": Meaning(
        "Refused, and made all the same",
        "The call was refused, but its outcome was reported: the agent does not obey decisions.",
    ),
    "run_unasked": Meaning(
        "Made without asking",
        "The outcome of a call was reported that had never been put to Remit: something went past it.",
    ),
    "coverage_gap": Meaning(
        "Calls without a receipt",
        "The agent's own record of a session names calls that no receipt shows: something went past Remit.",
    ),
    "coverage_unproven": Meaning(
        "Calls not proven",
        "The agent's own record is the only sign that calls without a receipt did not run, and proves nothing.",
    ),
    "enforcement_gap": Meaning(
        "Protection not in force",
        "A check found that the agent would not ask Remit, or would go on without its answer.",
    ),
    "tool_calls_exhausted": Meaning("Out of calls", "The session has used all the calls that its passport grants."),
    "duration_exceeded": Meaning("Out of time", "The session has lasted as long as its passport allows."),
    "lineage_budget_exhausted": Meaning(
        "Calls set aside", "All calls that are left were set aside for delegates of this session."
    ),
    "passport_revoked": Meaning("Passport revoked", "The passport, or one that it was delegated from, was taken back."),
    "session_revoked": Meaning("Session revoked", "The session was taken back while it ran."),
    "session_ended": Meaning("Session ended", "The session had ended, and a call came after its end."),
    "kill_switch": Meaning("Kill switch", "The kill switch was on, or had stopped this session for good."),
    "protection_tampered": Meaning(
        "Protection tampered with",
        "The settings that put this agent under Remit were changed and could not be kept in force: its sessions ended.",
    ),
    "chain_broken": Meaning(
        "Broken chain", "The receipts of this session do not form one whole chain any more, so it takes no calls."
    ),
    "provider_side_activity": Meaning(
        "Unseen at the provider",
        "Part of the work was done at the provider of the model, where nothing here can see it.",
    ),
    "target_unknown": Meaning(
        "Target unknown", "It could not be determined what the call would affect, so it is refused."
    ),
    "shell_unparsed": Meaning(
        "Command not readable",
        "The command cannot be read with certainty as the shell would read it, and doubt refuses.",
    ),
    "rate_limited": Meaning(
        "Too many calls after the end",
        "The session was over and calls kept coming: those beyond ten a second were not evaluated, only counted.",
    ),
}

# By the fault of a receipt in a chain. Faults can also be codes of errors.
FAULT_WORDS: Final[Mapping[str, str]] = {
    "issuer_changed": "is signed by a key that the one before did not hand over to",
    "lineage_changed": "belongs to another session",
    "root_has_parent": "is the first, and yet names one before it",
    "parent_missing": "names none before it",
    "parent_id_mismatch": "does not name the one before it: something was removed, added or moved",
    "parent_hash_mismatch": "follows another receipt than the one that is kept before it",
    "step_out_of_order": "is not the next step",
    "time_went_back": "is older than the one before it",
    "id_mismatch": "has two different ids, or that of the one before it",
    "head_mismatch": "is missing, or is not the last one that this session has signed",
    "signature_invalid": "has a signature that does not verify: it was changed after it was signed",
    "key_unknown": "is signed by an unknown key",
    "row_mismatch": "is another receipt than the one that belongs in this place",
}


def find_meaning(code: str) -> Meaning:
    """Return the meaning of a denial code; an unknown code is its own title."""
    return MEANINGS.get(code) or Meaning(code, "This version of Remit has no description of this code.")


def describe_fault(fault: str) -> str:
    """Return the description of a fault, as the predicate of a sentence about the receipt."""
    return FAULT_WORDS.get(fault) or f"cannot be read as a signed receipt ({fault})"
