"""Names of plain ASCII are judged by a short way, and as by the long one."""

from hypothesis import given
from hypothesis import strategies as st

from robolearn.data.store.confine import confined
from robolearn.errors import UnsafePathError


@given(st.text(st.characters(max_codepoint=127), max_size=4))
def test_plain_names_are_judged_as_unusual_ones_are(text: str):
    def refused(name: str) -> bool:
        try:
            return not confined(name, "here", single=True)
        except UnsafePathError:
            return True

    # A letter of another script takes the long way.
    assert refused(f"{text}a") == refused(f"{text}\u00e9")
