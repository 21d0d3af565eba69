"""Environments: made, changed, listed, archived, deleted."""

import uuid

from anthropic import BadRequestError, ConflictError, NotFoundError
from anthropic.types.beta import BetaEnvironment
from pydantic import TypeAdapter

import wire
from case import Case


class Environments(Case):
    def create(self, **fields):
        name = f"env-{uuid.uuid4()}"
        return self.client.beta.environments.create(**{"name": name, "config": {"type": "cloud"}, **fields})

    def test_an_environment_comes_back_as_it_was_made(self) -> None:
        made = self.create(name="one", description="A place.", metadata={"team": "tools"})
        self.assertEqual((made.name, made.description, made.type), ("one", "A place.", "environment"))
        self.assertEqual((made.metadata, made.config.type), ({"team": "tools"}, "cloud"))
        self.assertEqual(self.client.beta.environments.retrieve(made.id).to_dict(), made.to_dict())

    def test_an_environment_has_the_shape_that_the_client_declares(self) -> None:
        raw = wire.request(self.tenure, "GET", f"/v1/environments/{self.create().id}").json
        TypeAdapter(BetaEnvironment).validate_python(raw)

    def test_a_name_is_enough(self) -> None:
        made = self.client.beta.environments.create(name="only a name")
        self.assertEqual(made.config.type, "cloud")

    def test_an_update_changes_what_it_names(self) -> None:
        made = self.create(description="A place.", metadata={"a": "1", "b": "2"})
        changed = self.client.beta.environments.update(made.id, name="other", metadata={"a": None, "c": "3"})
        self.assertEqual((changed.id, changed.name, changed.description), (made.id, "other", "A place."))
        self.assertEqual(changed.metadata, {"b": "2", "c": "3"})
        self.assertEqual(self.client.beta.environments.retrieve(made.id).name, "other")

    def test_an_archived_environment_is_hidden_and_starts_nothing(self) -> None:
        made = self.create()
        self.assertIsNotNone(self.client.beta.environments.archive(made.id).archived_at)
        self.assertNotIn(made.id, [environment.id for environment in self.client.beta.environments.list()])
        everything = self.client.beta.environments.list(include_archived=True)
        self.assertIn(made.id, [environment.id for environment in everything])
        agent = self.client.beta.agents.create(name="any", model="script/echo")
        with self.assertRaises((BadRequestError, ConflictError)):
            self.client.with_options(max_retries=0).beta.sessions.create(agent=agent.id, environment_id=made.id)

    def test_a_deleted_environment_is_gone(self) -> None:
        made = self.create()
        deleted = self.client.beta.environments.delete(made.id)
        self.assertEqual((deleted.id, deleted.type), (made.id, "environment_deleted"))
        with self.assertRaises(NotFoundError):
            self.client.beta.environments.retrieve(made.id)

    def test_the_list_comes_in_pages_newest_first(self) -> None:
        made = [self.create().id for _ in range(5)]
        page = self.client.beta.environments.list(limit=2)
        self.assertEqual([environment.id for environment in page.data], [made[4], made[3]])
        listed = [environment.id for environment in self.client.beta.environments.list(limit=2) if environment.id in made]
        self.assertEqual(listed, made[::-1])

    def test_what_is_not_served_yet_is_refused_with_a_code(self) -> None:
        packages = {"type": "cloud", "packages": {"pip": ["requests"]}}
        with self.assertRaises(BadRequestError) as refused:
            self.create(config=packages)
        self.assertIn("packages", refused.exception.api_message)
        self.assertTrue(refused.exception.body["error"]["code"])
