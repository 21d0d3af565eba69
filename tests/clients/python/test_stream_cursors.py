"""O-055, O-056 and O-057: a stream goes on where a cursor says, and never shows twice or skips."""

import wire
from case import Case, message

# Statuses with which a cursor that makes no sense may be refused.
REFUSED = (400, 431)


class StreamCursors(Case):
    def told(self, turns: int = 3):
        """A session with a few turns, and its last seq."""
        session = self.session("echo")
        for number in range(turns):
            self.turn(session, message(f"message {number}"))
        return session, self.all_events(session)[-1].seq

    def frames(self, session, last: int, **options) -> list[wire.Frame]:
        with wire.RawStream(self.tenure, session.id, **options) as stream:
            self.assertEqual(stream.status, 200)
            return stream.up_to(last)

    def test_o_055_a_second_drop_replays_the_same_bytes(self) -> None:
        session, last = self.told()
        cursor = str(last - 6)
        with wire.RawStream(self.tenure, session.id, last_event_id=cursor) as stream:
            self.assertEqual(stream.status, 200)
        replays = [b"".join(frame.raw for frame in self.frames(session, last, last_event_id=cursor)) for _ in range(3)]
        self.assertEqual(len(set(replays)), 1)
        self.assertEqual([frame.id for frame in self.frames(session, last, last_event_id=cursor)], [str(seq) for seq in range(last - 5, last + 1)])

    def test_o_056_a_reconnect_shows_the_rest_exactly_once(self) -> None:
        session, last = self.told()
        with wire.RawStream(self.tenure, session.id, query="?after=0") as stream:
            before = stream.up_to(last // 2)
        rest = [str(seq) for seq in range(last // 2 + 1, last + 1)]
        self.assertEqual([frame.id for frame in before], [str(seq) for seq in range(1, last // 2 + 1)])
        by_header = self.frames(session, last, last_event_id=before[-1].id)
        by_query = self.frames(session, last, query=f"?after={before[-1].id}")
        self.assertEqual([frame.id for frame in by_header], rest)
        self.assertEqual([frame.raw for frame in by_query], [frame.raw for frame in by_header])

    def test_o_056_without_a_cursor_the_stream_is_live_only(self) -> None:
        session, last = self.told()
        with wire.RawStream(self.tenure, session.id) as stream:
            self.send(session, message("live"))
            first = next(stream.frames())
            numbered = [frame for frame in [first, *stream.up_to(last + 2)] if frame.id is not None]
        self.assertEqual(first.data["content"][0]["text"], "live")
        self.assertEqual(int(numbered[0].id), last + 1)

    def test_the_header_wins_over_nothing_and_a_replay_goes_on_live(self) -> None:
        session, last = self.told(turns=1)
        with wire.RawStream(self.tenure, session.id, last_event_id=str(last - 1)) as stream:
            self.assertEqual([frame.id for frame in stream.up_to(last)], [str(last)])
            self.send(session, message("live"))
            following = stream.up_to(last + 2)
        self.assertEqual([frame.id for frame in following if frame.id], [str(last + 1), str(last + 2)])

    def test_every_durable_frame_carries_its_seq_and_its_type(self) -> None:
        session, last = self.told(turns=1)
        for frame in self.frames(session, last, query="?after=0"):
            self.assertEqual((frame.event, frame.id), (frame.data["type"], str(frame.data["seq"])))
            self.assertNotIn(frame.event, ("ping", "error"))

    def test_o_057_strange_cursors_are_refused_or_reset(self) -> None:
        session, last = self.told(turns=1)
        strange = ["", "abc", "-1", "1e3", "0x10", str(last + 1000), str(2**64), str(2**70), f"{last}.1.1", "1.2", "1.x.y", "9" * 1_000_000]
        for cursor in strange:
            with self.subTest(cursor=cursor[:20], by="header"):
                self.check_strange(session, cursor, last_event_id=cursor)
            if len(cursor) < 1000:
                with self.subTest(cursor=cursor, by="query"):
                    self.check_strange(session, cursor, query=f"?after={cursor}")

    def check_strange(self, session, cursor: str, **options) -> None:
        try:
            stream = wire.RawStream(self.tenure, session.id, **options)
        except (BrokenPipeError, ConnectionResetError):
            # The server hung up in the middle of a header that has no end.
            return
        with stream:
            if stream.status in REFUSED:
                return
            self.assertEqual(stream.status, 200)
            if cursor:
                self.assertEqual(next(stream.frames()).event, "session.reset")
            else:
                # An empty id means no cursor, as in the standard of event streams.
                self.send(session, message("live"))
                self.assertEqual(next(stream.frames()).data["content"][0]["text"], "live")

    def test_o_057_a_cursor_of_another_session_never_shows_its_events(self) -> None:
        session, last = self.told(turns=1)
        other, far = self.told(turns=4)
        theirs = {event.id for event in self.all_events(other)}
        self.assertGreater(far, last)
        with wire.RawStream(self.tenure, session.id, last_event_id=str(far)) as stream:
            if stream.status in REFUSED:
                return
            self.send(session, message("mine"))
            first = next(stream.frames())
            self.assertNotIn(first.data.get("id"), theirs)
