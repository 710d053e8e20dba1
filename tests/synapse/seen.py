"""Everything that a person's client received, by room. It only collects; what it means is `screen.py`."""

from __future__ import annotations

from collections import defaultdict

from tests.synapse.screen import Event, Screen, drawn


class Seen:
    """Fed with the answers of /sync and /messages; what comes twice is kept once."""

    def __init__(self) -> None:
        self.since = ""
        self.invited: set[str] = set()
        self.joined: set[str] = set()
        self._events: dict[str, list[Event]] = defaultdict(list)
        self._ids: dict[str, set[str]] = defaultdict(set)
        self._gap: dict[str, int] = {}  # where, in a room's events, what was left out belongs
        self._typing: dict[str, list[str]] = {}
        self._read: dict[str, dict[str, str]] = defaultdict(dict)

    def take(self, answer: Event) -> list[tuple[str, str]]:
        """An answer of /sync; the rooms whose timeline was limited, with the token where reading backwards begins."""
        rooms = answer.get("rooms", {})
        self.invited |= set(rooms.get("invite", {}))
        self.joined |= set(rooms.get("join", {}))
        self.invited -= self.joined
        self.joined -= set(rooms.get("leave", {}))
        limited: list[tuple[str, str]] = []
        for room, news in [*rooms.get("join", {}).items(), *rooms.get("leave", {}).items()]:
            timeline = news.get("timeline", {})
            if timeline.get("limited"):
                limited.append((room, timeline["prev_batch"]))
                self._gap[room] = len(self._events[room])
            self._add(room, timeline.get("events", []))
            for event in news.get("ephemeral", {}).get("events", []):
                self._passing(room, event)
        self.since = answer["next_batch"]
        return limited

    def fill(self, room: str, backwards: list[Event]) -> bool:
        """A page of older events, newest first; whether there may be more that is not known."""
        new = [event for event in backwards if event["event_id"] not in self._ids[room]]
        place = self._gap[room]
        self._events[room][place:place] = reversed(new)
        self._ids[room] |= {event["event_id"] for event in new}
        return bool(new) and len(new) == len(backwards)

    def screen(self, room: str) -> Screen:
        """As it looks now."""
        return drawn(self._events[room], self._typing.get(room, ()), self._read[room])

    def texts(self) -> dict[str, list[str]]:
        """Who said what, by room."""
        return {
            room: [f"{each.sender}: {each.text}" for each in self.screen(room).messages] for room in list(self._events)
        }

    def events(self, room: str) -> list[Event]:
        """As they came."""
        return list(self._events[room])

    def membership(self, room: str, user_id: str) -> str:
        """How somebody stands to a room: invite, join, leave, or nothing."""
        events = [each for each in self._events[room] if each["type"] == "m.room.member"]
        return next((each["content"]["membership"] for each in reversed(events) if each["state_key"] == user_id), "")

    def _add(self, room: str, events: list[Event]) -> None:
        new = [event for event in events if event["event_id"] not in self._ids[room]]
        self._events[room] += new
        self._ids[room] |= {event["event_id"] for event in new}

    def _passing(self, room: str, event: Event) -> None:
        if event["type"] == "m.typing":
            self._typing[room] = event["content"]["user_ids"]
        elif event["type"] == "m.receipt":
            for event_id, kinds in event["content"].items():
                self._read[room] |= dict.fromkeys(kinds.get("m.read", {}), event_id)
