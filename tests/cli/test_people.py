"""`coterie people`: codes, approvals and permissions. P3"""

from __future__ import annotations

import asyncio
import re

import pytest

from coterie.app import all_projections, open_store
from coterie.base.clock import SystemClock
from coterie.base.paths import Paths
from coterie.characters.people import PairingRequest, People
from tests.cli.conftest import Call

CODE = re.compile(r"\b[A-Z2-9]{5}-[A-Z2-9]{5}\b")


@pytest.fixture(autouse=True)
def real_projections(home: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.app.all_projections", all_projections)


def request_access(home: Paths, account: str) -> PairingRequest:
    with open_store(home) as store:
        asking = asyncio.run(People(store, SystemClock()).request_pairing("matrix", account, "Bo\x1b[2J", 15))
        assert asking is not None
        return asking


def link(home: Paths, code: str, account: str) -> str:
    with open_store(home) as store:
        return asyncio.run(People(store, SystemClock()).link(code, "matrix", account)).name


def test_p3_a_request_for_access_is_approved_once(call: Call, home: Paths) -> None:
    asking = request_access(home, "@bo:here")
    listed = call("people", "list")
    assert asking.code in listed.out and "@bo:here" in listed.out
    approved = call("people", "approve", asking.code)
    assert approved.code == 0 and "@bo:here on matrix is Bo" in approved.out and "\x1b" not in approved.out
    second = call("people", "approve", asking.code)
    assert second.code == 22 and "There is no request" in second.err
    listed = call("people", "list")
    assert "may talk with nobody" in listed.out and "Requests access" not in listed.out


def test_p3_codes_link_accounts_and_invite_people(call: Call, home: Paths) -> None:
    created = call("people", "code")
    assert created.code == 0
    assert link(home, CODE.findall(created.out)[0], "@ana:here") == "You"
    invited = call("people", "invite", "Cy")
    assert link(home, CODE.findall(invited.out)[0], "@cy:here") == "Cy"
    assert call("people", "allow", "Cy", "*").code == 0
    listed = call("people", "list").out
    assert "You (owner): may talk with everybody" in listed and "Cy: may talk with everybody" in listed
    assert call("people", "allow", "Cy", "*", "--withdraw").code == 0
    assert call("people", "unlink", "matrix", "@cy:here").code == 0
    assert "@cy:here" not in call("people", "list").out
    assert call("people", "code", "Nobody").code == 22
    assert call("verify").code == 0


def test_a_key_is_created_listed_and_revoked(home: Paths, process: Call) -> None:
    made = process("people", "key", "owner", "--for", "my laptop", samples=False)
    token = made.out.splitlines()[0]
    assert made.code == 0 and token.startswith("coterie_")
    listed = process("people", "keys", samples=False).out
    assert "my laptop" in listed and token not in listed
    assert process("people", "revoke-key", listed.split()[0], samples=False).code == 0
    assert process("people", "keys", samples=False).out == ""
    assert process("people", "revoke-key", "nothing", samples=False).code != 0
