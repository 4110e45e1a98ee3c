"""Memory that is lent again: never twice at once, and no more of it than was ever lent."""

import mmap
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ensue.engine import huge_pages
from ensue.engine.huge_pages import HUGE_PAGE, HugePages

pytestmark = pytest.mark.skipif(not huge_pages.IS_SUPPORTED, reason="no huge pages on this system")


def address(view: memoryview) -> int:
    return torch.frombuffer(view, dtype=torch.uint8).data_ptr()


@given(st.lists(st.one_of(st.integers(1, 5 * HUGE_PAGE), st.floats(0, 1, exclude_max=True)), max_size=30))
def test_any_borrowing_and_returning(doings: list[int | float]) -> None:
    """An integer borrows so many bytes, a fraction gives back the view that stands there among those borrowed."""
    pages, views, most = HugePages(), list[tuple[memoryview, int]](), 0
    for mark, doing in enumerate(doings, start=1):
        if isinstance(doing, int):
            view = pages.borrow(doing)
            assert doing <= len(view)
            view[0] = view[-1] = mark
            views.append((view, mark))
            del view
        elif views:
            del views[int(doing * len(views))]
        lent, waiting = pages.held()
        assert lent == sum(len(view) for view, _ in views)
        most = max(most, lent)
        assert lent + waiting <= most
        assert all(view[0] == view[-1] == mark for view, mark in views)


def test_a_block_is_lent_again_when_the_last_tensor_in_it_is_gone() -> None:
    pages = HugePages()
    tensor = torch.frombuffer(pages.borrow(HUGE_PAGE), dtype=torch.float32)[5:9].view(2, 2).fill_(7.0)
    place = tensor.untyped_storage().data_ptr()
    assert address(pages.borrow(HUGE_PAGE)) != place
    assert tensor.tolist() == [[7.0, 7.0], [7.0, 7.0]]
    del tensor
    assert {address(view) for view in [pages.borrow(HUGE_PAGE), pages.borrow(HUGE_PAGE)]} > {place}
    assert pages.held() == (0, 2 * HUGE_PAGE)


def test_the_closest_fit_is_lent_and_nothing_much_larger() -> None:
    pages = HugePages()
    sizes = [9 * HUGE_PAGE, 8 * HUGE_PAGE, 30 * HUGE_PAGE]
    views = [pages.borrow(size) for size in sizes]
    places = [address(view) for view in views]
    views.clear()
    near, none = pages.borrow(8 * HUGE_PAGE - 5), pages.borrow(15 * HUGE_PAGE)
    assert (address(near), len(near)) == (places[1], 8 * HUGE_PAGE)
    assert len(none) == 15 * HUGE_PAGE


def test_threads() -> None:
    pages = HugePages()

    def work(number: int) -> bool:
        choose, was_alone = random.Random(number), True
        for _ in range(50):
            view = pages.borrow(choose.randint(1, 3 * HUGE_PAGE))
            view[:8] = bytes([number] * 8)
            was_alone &= bytes(view[:8]) == bytes([number] * 8)
        return was_alone

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(1, 9)))
    assert pages.held()[0] == 0


def test_a_kernel_without_such_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 12345)
    monkeypatch.setattr(mmap, "MADV_FREE", 12345)
    pages = HugePages()
    view = pages.borrow(3)
    view[2] = 7
    del view
    assert pages.held() == (0, HUGE_PAGE)


def test_where_there_is_no_memory_what_waits_is_given_back() -> None:
    pages = HugePages()
    pages.borrow(HUGE_PAGE)
    assert pages.held() == (0, HUGE_PAGE)
    with pytest.raises(OSError, match="allocate memory"):
        pages.borrow(1 << 52)
    assert pages.held() == (0, 0)
