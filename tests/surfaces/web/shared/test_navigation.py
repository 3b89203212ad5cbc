from __future__ import annotations

from fastapi import APIRouter

from coterie.surfaces.web import server
from coterie.surfaces.web.shared.assets import assets
from coterie.surfaces.web.shared.templates import NAVIGATION_ITEMS, PageRouter, available_items
from tests.surfaces.web.conftest import Web


def test_a_mode_is_on_the_rail_as_soon_as_it_has_a_page() -> None:
    drafts = PageRouter(prefix="/draft")
    drafts.get("")(lambda: None)
    chats = APIRouter()
    chats.get("/chats")(lambda: None)
    assert [place.label for place in available_items([drafts, chats])] == ["Stories", "Drafts"]
    assert available_items([]) == ()


def test_every_place_has_its_own_key_and_an_icon() -> None:
    assert (
        len({place.key for place in NAVIGATION_ITEMS})
        == len({place.path for place in NAVIGATION_ITEMS})
        == len(NAVIGATION_ITEMS)
    )
    assert [place.mode for place in NAVIGATION_ITEMS] == sorted(
        (place.mode for place in NAVIGATION_ITEMS), reverse=True
    )


async def test_every_navigation_item_can_be_opened(web: Web) -> None:
    places = available_items(server._PAGES)
    assert {"/chats", "/characters", "/memory", "/ops", "/settings"} <= {place.path for place in places}
    page = (await web.client.get("/settings", headers={"Accept": "text/html"})).text
    for place in places:
        assert f'href="{place.path}"' in page
        assert f'id="i-{place.icon}"' in page
        assert f'data-key="{place.key}"' in page
        assert (await web.client.get(place.path, headers={"Accept": "text/html"})).status_code == 200


def test_the_style_sheet_of_a_mode_is_loaded_only_by_its_pages() -> None:
    assert "story/story.css" not in assets()
    assert b".timeline" in assets()["app.css"].data
