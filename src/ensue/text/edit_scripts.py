"""Edit scripts: the shortest rule of prefix, suffix and case that turns a form into another one, such as its lemma.

Many pairs share a script: "dogs", "dog" and "Books", "book" have one. So a tagger learns lemmas as labels (Chrupała et
al. 2008; Straka 2018).
"""

from __future__ import annotations

from difflib import SequenceMatcher
from functools import lru_cache

CASES = {
    "lower": str.lower,
    "keep": lambda form: form,
    "title": lambda form: form[:1].upper() + form[1:].lower(),
    "upper": str.upper,
}
"""How a form is written before its ends are changed; of equally short scripts the first one counts."""
WHOLE = "="
"""The beginning of a script that is the result itself, whatever the form."""
LONGEST = 128
"""The most characters of a form or result whose shared part is looked for, which takes time with their product."""


@lru_cache(maxsize=1 << 16)
def edit_script(form: str, result: str) -> str:
    """The script that makes `result` of `form`: `case-2+a-3+y` removes two characters in front and puts "a" there, and
    removes three behind and puts "y" there. What the two do not share is written out: `=result`, and so is what is
    longer than `LONGEST`, unless it is the form.
    """
    if max(len(form), len(result)) > LONGEST:
        return _script_of_long(form, result)
    found = [script for case in CASES if (script := _script(case, form, result)) is not None]
    return min(found, key=lambda pair: pair[0])[1] if found else WHOLE + result


def _script_of_long(form: str, result: str) -> str:
    cases = CASES if len(form) == len(result) else ()
    same = next((case for case in cases if CASES[case](form) == result), None)
    return f"{same}-0+-0+" if same else WHOLE + result


def _script(case: str, form: str, result: str) -> tuple[int, str] | None:
    """The cost, in characters that are removed or added, and the script; None if nothing is shared."""
    cased = CASES[case](form)
    shared = SequenceMatcher(None, cased, result, autojunk=False).find_longest_match()
    if not shared.size:
        return None
    front, begin = shared.a, result[: shared.b]
    behind, end = len(cased) - shared.a - shared.size, result[shared.b + shared.size :]
    script = f"{case}-{front}+{begin}-{behind}+{end}"
    if applied(script, form) != result:  # a "-" or "+" of the result's own reads differently
        return None
    return front + behind + len(begin) + len(end), script


def applied(script: str, form: str) -> str:
    """The result of a script on a form; the form in lowercase where it cannot be applied, or is none."""
    if script.startswith(WHOLE) and len(script) > len(WHOLE):
        return script[len(WHOLE) :]
    case, _, rest = script.partition("-")
    front, _, rest = rest.partition("+")
    begin, _, rest = rest.rpartition("-")
    behind, _, end = rest.partition("+")
    if case not in CASES or not (_is_count(front) and _is_count(behind)):
        return form.lower()
    cased, first, last = CASES[case](form), int(front), int(behind)
    if first + last > len(cased):
        return form.lower()
    return (begin + cased[first : len(cased) - last] + end) or form.lower()


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 5
