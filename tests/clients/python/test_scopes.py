"""Keys of a file: a program runs its agent, and only a person approves."""

from anthropic import APIStatusError, PermissionDeniedError

import running
import wire
from case import ASKING_TOOLSET, Case, is_idle, message, of_kind, text

KEYS = {"program": "0123456789-program", "person": "0123456789-person", "board": "0123456789-board"}
LINES = [f"default program {KEYS['program']}", f"default person {KEYS['person']} person", f"default board {KEYS['board']} read"]


class Scopes(Case):
    @classmethod
    def setUpClass(cls) -> None:
        cls.tenure = running.Tenure(keys=LINES)
        cls.addClassCleanup(cls.tenure.stop)
        cls.client = cls.tenure.client(api_key=KEYS["program"])
        cls.person = cls.tenure.client(api_key=KEYS["person"])
        cls.board = cls.tenure.client(api_key=KEYS["board"])

    def refused(self, call) -> None:
        with self.assertRaises(PermissionDeniedError) as raised:
            call()
        self.assertEqual(raised.exception.type, "permission_error")
        self.assertEqual(raised.exception.body["error"]["code"], "scope_required")

    def test_a_program_runs_its_agent_and_a_person_approves(self) -> None:
        session = self.session("shell", tools=[ASKING_TOOLSET])
        seen = self.turn(session, message("go"))
        (call,) = of_kind(seen, "agent.tool_use")
        allow = {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": "allow"}
        self.refused(lambda: self.send(session, allow))
        self.refused(lambda: self.send(session, message("and"), allow))
        with self.stream(session) as stream:
            self.person.beta.sessions.events.send(session.id, events=[allow])
            seen = self.read(stream, is_idle)
        (result,) = of_kind(seen, "agent.tool_result")
        self.assertIn("the command ran", text(result))

    def test_a_board_looks_and_changes_nothing(self) -> None:
        session = self.session("echo")
        self.turn(session, message("hello"))
        self.assertEqual(self.board.beta.sessions.retrieve(session.id).id, session.id)
        self.assertIn("agent.message", [event.type for event in self.board.beta.sessions.events.list(session.id)])
        self.refused(lambda: self.board.beta.sessions.events.send(session.id, events=[message("more")]))
        self.refused(lambda: self.board.beta.agents.create(name="any", model="script/echo"))
        self.refused(lambda: self.board.beta.sessions.delete(session.id))

    def test_only_a_person_writes_files(self) -> None:
        session = self.session("echo")
        path = f"/v1/sessions/{session.id}/files/content?path=f"
        for name, status in (("board", 403), ("program", 403), ("person", 200)):
            reply = wire.request(self.tenure, "PUT", path, body=b"text", headers={"x-api-key": KEYS[name]})
            self.assertEqual(reply.status, status, name)

    def test_a_program_cannot_weaken_its_sandbox(self) -> None:
        for config in ({"type": "cloud", "driver": "process"}, {"type": "cloud", "network": "host"}):
            self.refused(lambda config=config: self.client.beta.environments.create(name="weak", config=config))

    def test_a_command_reads_no_file_of_keys(self) -> None:
        session = self.session("read-keys", tools=[ASKING_TOOLSET | {"configs": []}])
        # The scenario says back what the user said, as a command.
        seen = self.turn(session, message(f"cat {self.tenure.keys_file} {self.tenure.data}/api.key 2>&1; true"))
        results = of_kind(seen, "agent.tool_result")
        self.assertEqual(len(results), 1)
        for key in [*KEYS.values(), self.tenure.key]:
            self.assertNotIn(key, text(results[0]))

    def test_a_key_that_somebody_pastes_is_not_stored(self) -> None:
        session = self.session("echo")
        self.turn(session, message(f"my key is {KEYS['person']}, keep it"))
        for event in self.all_events(session):
            self.assertNotIn(KEYS["person"], str(event.to_dict()))

    def test_an_unknown_key_is_told_apart_from_a_small_one(self) -> None:
        with self.assertRaises(APIStatusError) as raised:
            self.tenure.client(api_key="0123456789-nobody", max_retries=0).beta.agents.list()
        self.assertEqual(raised.exception.status_code, 401)
