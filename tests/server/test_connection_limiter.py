"""Which connection makes room: so many in all and of one peer, the longest waiting first, never one with a request."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from remit.server.limits import ConnectionLimiter


@dataclass(eq=False)
class Visitor:
    """A connection as far as the limiter is concerned."""

    peer: str = "a"
    since: float = 0.0
    is_busy: bool = False
    is_stalled: bool = False
    is_authenticated: bool = False
    was_cut: bool = field(default=False, init=False)

    def abort(self) -> None:
        self.was_cut = True


def admitted(limiter: ConnectionLimiter, *visitors: Visitor) -> list[bool]:
    return [limiter.admit(visitor) for visitor in visitors]


def cut(*visitors: Visitor) -> list[bool]:
    return [visitor.was_cut for visitor in visitors]


def test_there_is_room_until_there_is_none() -> None:
    visitors = [Visitor(since=float(number)) for number in range(3)]
    assert admitted(ConnectionLimiter(10, 3), *visitors) == [True] * 3
    assert cut(*visitors) == [False] * 3


def test_the_one_who_has_waited_longest_makes_room_whoever_came_first() -> None:
    limiter = ConnectionLimiter(10, 3)
    visitors = [Visitor(since=since) for since in (2.0, 1.0, 3.0)]
    assert admitted(limiter, *visitors, Visitor(since=4.0), Visitor(since=5.0)) == [True] * 5
    assert cut(*visitors) == [True, True, False]


def test_who_has_asked_is_not_cut_off_and_then_there_is_no_room() -> None:
    limiter = ConnectionLimiter(10, 2)
    busy, waiting = Visitor(is_busy=True), Visitor(since=1.0)
    assert admitted(limiter, busy, waiting, Visitor(since=2.0, is_busy=True), Visitor(since=3.0)) == [
        True, True, True, False,
    ]  # fmt: skip
    assert cut(busy, waiting) == [False, True]


def test_a_peer_with_too_many_makes_room_among_its_own() -> None:
    limiter = ConnectionLimiter(10, 2)
    other, own, late = Visitor("b", since=0.0), Visitor("a", since=1.0), Visitor("a", since=2.0)
    assert admitted(limiter, other, own, Visitor("a", since=1.5), late) == [True] * 4
    assert cut(other, own) == [False, True]


def test_when_all_together_are_too_many_anyone_makes_room() -> None:
    limiter = ConnectionLimiter(3, 2)
    first, second, third = Visitor("a", since=1.0), Visitor("b", since=0.0), Visitor("c", since=2.0)
    assert admitted(limiter, first, second, third, Visitor("d", since=3.0)) == [True] * 4
    assert cut(first, second, third) == [False, True, False]


def test_who_leaves_makes_room_once_however_often() -> None:
    limiter = ConnectionLimiter(10, 1)
    gone, next_one = Visitor(), Visitor(since=1.0, is_busy=True)
    limiter.admit(gone)
    limiter.leave(gone)
    assert limiter.admit(next_one)
    limiter.leave(gone)
    assert not gone.was_cut
    assert not limiter.admit(Visitor(since=2.0))


def test_who_was_not_admitted_can_leave() -> None:
    limiter = ConnectionLimiter(1, 1)
    limiter.admit(Visitor("a", is_busy=True))
    refused = Visitor("b")
    assert not limiter.admit(refused)
    limiter.leave(refused)
    assert not limiter.admit(Visitor("b"))


VISITS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=60)


@given(VISITS, st.integers(1, 6), st.integers(1, 4))
def test_there_are_never_more_than_there_may_be_and_who_has_asked_stays(
    visits: list[tuple[str, bool, bool]], most: int, most_per_peer: int
) -> None:
    limiter, inside = ConnectionLimiter(most, most_per_peer), list[Visitor]()
    for number, (peer, is_busy, leaves) in enumerate(visits):
        visitor = Visitor(peer, float(number), is_busy)
        if limiter.admit(visitor):
            inside.append(visitor)
        if leaves and inside:
            limiter.leave(inside.pop(0))
        assert not [one for one in inside if one.is_busy and one.was_cut]
        inside = [one for one in inside if not one.was_cut]
        assert len(inside) <= most
        assert all(sum(one.peer == name for one in inside) <= most_per_peer for name in "abc")


def test_whoever_leaves_an_answer_lying_makes_room_before_those_who_wait() -> None:
    limiter = ConnectionLimiter(10, 2)
    waiting, stalled = Visitor(since=0.0), Visitor(since=9.0, is_stalled=True)
    assert admitted(limiter, waiting, stalled, Visitor(since=10.0)) == [True] * 3
    assert cut(waiting, stalled) == [False, True]


def test_whoever_is_not_admitted_leaves_nothing_behind() -> None:
    limiter = ConnectionLimiter(1, 1)
    limiter.admit(Visitor("a", is_busy=True))
    for name in "bcd":
        assert not limiter.admit(Visitor(name))
    assert [*limiter._connections] == ["a"]


def test_who_has_shown_a_token_stays_while_there_are_others_who_have_not() -> None:
    limiter = ConnectionLimiter(10, 3)
    known = Visitor(since=0.0, is_authenticated=True)
    strangers = [Visitor(since=float(number)) for number in range(1, 200)]
    assert admitted(limiter, known, *strangers) == [True] * 200
    assert (known.was_cut, cut(*strangers[-2:])) == (False, [False, False])


def test_of_those_who_have_all_shown_a_token_the_longest_waiting_makes_room() -> None:
    limiter = ConnectionLimiter(10, 2)
    visitors = [Visitor(since=since, is_authenticated=True) for since in (2.0, 1.0, 3.0)]
    assert admitted(limiter, *visitors) == [True] * 3
    assert cut(*visitors) == [False, True, False]


def test_a_connection_that_has_just_come_is_not_the_first_to_go_among_many() -> None:
    """It has not been read yet: as many as are taken at once may come before that."""
    limiter = ConnectionLimiter(1024, 1024)
    admitted(limiter, *(Visitor(since=float(number)) for number in range(1024)))
    hook = Visitor(since=2000.0)
    assert admitted(limiter, hook, *(Visitor(since=2000.0 + number) for number in range(900)))[0]
    assert not hook.was_cut
