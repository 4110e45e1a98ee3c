"""Edit scripts: the shortest change of prefix, suffix and case that turns a word form into a result, such as its lemma.

Many pairs have the same script, such as "dogs" → "dog" and "Books" → "book". So a tagger can predict scripts as labels
and apply the scripts to get lemmas (Chrupała et al. 2008; Straka 2018).
"""

import re
from difflib import SequenceMatcher
from functools import lru_cache

CASES = {
    "lower": str.lower, "keep": lambda form: form, "title": lambda form: form[:1].upper() + form[1:].lower(),
    "upper": str.upper,
}  # fmt: skip
"""Changes of case before the edits. Among equally short scripts, the first case in this table has priority."""
_SCRIPT = re.compile(rf"({'|'.join(CASES)})-([0-9]{{1,4}})\+(?:(.*)-)?([0-9]{{1,4}})(?:\+([^-]*))?", re.DOTALL)
RESULT_PREFIX = "="
"""The prefix of a script that contains the entire result."""
MAX_CHARACTERS = 128
"""The maximum length of a form or result whose common substring is searched, which takes quadratic time."""


@lru_cache(maxsize=1 << 16)
def edit_script(form: str, result: str) -> str:
    """Return the script that turns a form into a result.

    `lower-2+a-3+y` lowercases the form, replaces its first two characters by "a" and its last three by "y". If form and
    result have no common substring, the script is `=result`. If the form or the result is longer than `MAX_CHARACTERS`,
    the script either changes only the case or is `=result`.
    """
    scripts: list[tuple[int, str]] = []
    if max(len(form), len(result)) <= MAX_CHARACTERS:
        scripts = [script for case in CASES if (script := _find_script(case, form, result)) is not None]
    elif len(form) == len(result):
        scripts = [(0, f"{case}-0+-0+") for case in CASES if CASES[case](form) == result]
    return min(scripts, key=lambda pair: pair[0])[1] if scripts else RESULT_PREFIX + result


def _find_script(case: str, form: str, result: str) -> tuple[int, str] | None:
    """Return the number of removed and added characters, and the script; None without a common substring."""
    cased = CASES[case](form)
    match = SequenceMatcher(None, cased, result, autojunk=False).find_longest_match()
    if not match.size:
        return None
    num_first, prefix = match.a, result[: match.b]
    num_last, suffix = len(cased) - match.a - match.size, result[match.b + match.size :]
    script = f"{case}-{num_first}+{prefix}-{num_last}+{suffix}"
    if apply_script(script, form) != result:  # "-" or "+" inside the result makes the script ambiguous
        return None
    return num_first + num_last + len(prefix) + len(suffix), script


@lru_cache(maxsize=1 << 12)
def apply_script(script: str, form: str) -> str:
    """Return the result of applying a script to a form; the lowercased form if the script cannot be applied."""
    if script.startswith(RESULT_PREFIX) and len(script) > len(RESULT_PREFIX):
        return script[len(RESULT_PREFIX) :]
    match = _SCRIPT.fullmatch(script)
    if match is None:
        return form.lower()
    case, num_first, prefix, num_last, suffix = match.groups()
    cased, first, last = CASES[case](form), int(num_first), int(num_last)
    if first + last > len(cased):
        return form.lower()
    return ((prefix or "") + cased[first : len(cased) - last] + (suffix or "")) or form.lower()
