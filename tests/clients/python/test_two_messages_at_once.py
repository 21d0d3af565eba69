"""O-028: two messages at the same moment run one turn loop, lose nothing and double nothing."""

import threading

from case import Case, is_kind, message, of_kind, said, text

# Sessions that get two messages at once.
SESSIONS = 50


class TwoMessagesAtOnce(Case):
    def test_o_028_two_messages_at_once(self) -> None:
        agent = self.client.beta.agents.create(name="echo", model="script/echo")
        environment = self.client.beta.environments.create(name="two at once", config={"type": "cloud"})
        for number in range(SESSIONS):
            with self.subTest(number=number):
                session = self.client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
                self.check(session)

    def check(self, session) -> None:
        words, start, stored = ["left", "right"], threading.Barrier(2), {}

        def send(word: str) -> None:
            start.wait()
            (stored[word],) = self.send(session, message(word))

        with self.stream(session) as stream:
            threads = [threading.Thread(target=send, args=(word,)) for word in words]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seen = self.read(stream, is_kind("session.status_idle"))
            if len(of_kind(seen, "user.message")) < 2:
                seen += self.read(stream, is_kind("session.status_idle"))
        self.assertEqual(set(stored), set(words))

        events = self.all_events(session)
        asked = of_kind(events, "user.message")
        self.assertEqual(sorted(text(event) for event in asked), words)
        self.assertEqual({event.id for event in asked}, {event.id for event in stored.values()})
        answers = said(events)
        order = [text(event) for event in asked]
        both = "\n".join(order)
        self.assertIn(answers, (order, [both], [order[0], both]), "each message is seen by the model in order")
        self.assertEqual(len(of_kind(events, "span.model_request_start")), len(answers))
        self.assertEqual(
            len(of_kind(events, "session.status_running")), len(of_kind(events, "session.status_idle"))
        )

    def test_o_029_a_message_at_the_end_of_a_turn_is_answered(self) -> None:
        session = self.session("echo")
        with self.stream(session) as stream:
            self.send(session, message("one"))
            for word in ("two", "three", "four", "five"):
                self.read(stream, is_kind("agent.message"))
                self.send(session, message(word))
            self.read(stream, lambda event: event.type == "agent.message" and "five" in text(event))
            self.read(stream, is_kind("session.status_idle"))
        events = self.all_events(session)
        self.assertEqual([text(event) for event in of_kind(events, "user.message")], ["one", "two", "three", "four", "five"])
        self.assertEqual(said(events), ["one", "two", "three", "four", "five"])
