"""O-030 and O-031: U+0000 comes back exactly; a lone surrogate is replaced and breaks nothing."""

import wire
from case import Case, is_idle, message, of_kind, said, text

WITH_NUL = "a\u0000b \u0000"


class AnyUnicode(Case):
    def test_o_030_nul_in_text_comes_back_exactly(self) -> None:
        session = self.session("echo", title=f"title {WITH_NUL}")
        self.assertEqual(self.client.beta.sessions.retrieve(session.id).title, f"title {WITH_NUL}")
        seen = self.turn(session, message(WITH_NUL))
        self.assertEqual(said(seen), [WITH_NUL])
        events = self.all_events(session)
        self.assertEqual([text(event) for event in of_kind(events, "user.message")], [WITH_NUL])
        self.assertEqual(said(events), [WITH_NUL])

    def test_o_030_nul_in_the_definition_of_an_agent_comes_back_exactly(self) -> None:
        made = self.client.beta.agents.create(name="nul", model="script/echo", system=WITH_NUL, metadata={"k": WITH_NUL})
        kept = self.client.beta.agents.retrieve(made.id)
        self.assertEqual((kept.system, kept.metadata), (WITH_NUL, {"k": WITH_NUL}))

    def test_o_031_a_lone_surrogate_is_replaced_and_the_session_goes_on(self) -> None:
        for escaped, kept in (
            (rb"a\ud83db", "a\ufffdb"),
            (rb"a\ude00b", "a\ufffdb"),
            (rb"\ud83d", "\ufffd"),
            (rb"a\ud83d\ud83d\ude00b", "a\ufffd\U0001f600b"),
            (rb"a\ud83d\ude00b", "a\U0001f600b"),
            (rb"a\\ud83d b", r"a\ud83d b"),
        ):
            with self.subTest(escaped=escaped):
                session = self.session("echo")
                body = b'{"events":[{"type":"user.message","content":[{"type":"text","text":"' + escaped + b'"}]}]}'
                with self.stream(session) as stream:
                    reply = wire.request(self.tenure, "POST", f"/v1/sessions/{session.id}/events", body=body)
                    self.assertEqual((reply.status, reply.json["data"][0]["content"][0]["text"]), (200, kept))
                    seen = self.read(stream, is_idle)
                self.assertEqual(said(seen), [kept])
                self.assertEqual(said(self.turn(session, message("next"))), ["next"])

    def test_other_odd_characters_come_back_exactly(self) -> None:
        odd = "\u202e\u200b\ufeff\ufffe\u0085\u2028\r\n\t\x1b[2J\U0010ffff e\u0301"
        session = self.session("echo")
        self.assertEqual(said(self.turn(session, message(odd))), [odd])
        self.assertEqual(said(self.all_events(session)), [odd])
