"""C18: messages, audits and lines are counted by stage, rule and outcome, in Prometheus format."""

from __future__ import annotations

import asyncio
from pathlib import Path

from coterie.eventstore import NewEvent
from coterie.llm import ModelCalled
from coterie.llm.recording import RecordedCall
from coterie.modes.crowd import AuditRecord, ChatAuthor, ChatMessage, CrowdMetrics
from coterie.modes.crowd.events import CrowdWritten
from coterie.modes.crowd.protocol import Trace
from tests.modes.crowd.test_service import CrowdFixture


async def test_c18_metrics_cover_stages_rules_and_rooms(tmp_path: Path) -> None:
    place = CrowdFixture(tmp_path, RecordedCall(say="hm"))
    metrics = CrowdMetrics(place.service, place.store.bus)
    await place.service.room("attic")
    trace = Trace(spoken_ms=1_000, heard_ms=1_900, decided_ms=2_000, written_ms=4_000, posted_ms=4_500)
    author = ChatAuthor(name="salt_lamp", kind="persona")
    metrics.count(ChatMessage(id="attic-1", number=1, room="attic", author=author, text="hm", ts=4_600, trace=trace))
    metrics.count(AuditRecord(room="attic", ts=1, action="refused", rule="links", reason="no", author=author))
    text = metrics.text().decode()
    assert 'coterie_crowd_messages_total{kind="persona",room="attic"} 1.0' in text
    assert 'coterie_crowd_audits_total{action="refused",room="attic",rule="links"} 1.0' in text
    assert 'coterie_crowd_stage_seconds_sum{room="attic",stage="understood"} 0.9' in text
    assert 'coterie_crowd_stage_seconds_bucket{le="2.0",room="attic",stage="generated"} 1.0' in text
    assert 'coterie_crowd_readers{room="attic"} 0.0' in text
    called = ModelCalled(
        call="c",
        day="2026-01-01",
        role="crowd",
        provider="embedded",
        model="m",
        room="attic",
        outcome="failed",
        error="TimedOut",
        tokens_in=90,
        tokens_out=7,
        estimated=True,
        usd_micros=0,
        priced="free",
        total_ms=1_000,
    )
    async with asyncio.timeout(20):
        stop = asyncio.Event()
        counting = asyncio.create_task(metrics.run(stop))
        await asyncio.sleep(0)
        while "coterie_crowd_model_errors_total{" not in metrics.text().decode():
            await place.store.append([NewEvent("instance", called)])
            await asyncio.sleep(0.05)
        line = CrowdWritten(persona="salt_lamp", tick=1, at_ms=1, outcome="written", text="hm", fallback="it was late")
        while "coterie_crowd_fallbacks_total{" not in metrics.text().decode():
            await place.store.append([NewEvent("room:attic", line)])
            await asyncio.sleep(0.05)
        stop.set()
        await counting
    text = metrics.text().decode()
    assert 'coterie_crowd_model_errors_total{error="TimedOut",role="crowd",room="attic"}' in text
    assert 'coterie_crowd_tokens_total{direction="in",role="crowd",room="attic"}' in text
    assert 'coterie_crowd_memories_total{room="attic"} 0.0' in text
    await place.service.close()
    await place.models.close()
    place.store.close()
