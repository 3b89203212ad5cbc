"""Who acts in a document. Accounts come with the surfaces; here a person is an id and a name."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.modes.draft.commits import GitAuthor


@dataclass(frozen=True, slots=True)
class Contributor:
    id: str
    name: str
    email: str = ""

    @property
    def author(self) -> GitAuthor:
        return GitAuthor(self.name, self.email or f"{self.id}@coterie.invalid")
