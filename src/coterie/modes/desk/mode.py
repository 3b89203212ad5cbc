"""What the desk adds to the store."""

from __future__ import annotations

from coterie.kernel import Projection
from coterie.modes.desk.bulletins import BulletinProjection
from coterie.modes.desk.office import DeskProjection
from coterie.modes.desk.skills import SkillProjection
from coterie.modes.desk.timetable import ScheduleProjection


def desk_projections() -> list[Projection]:
    return [DeskProjection(), ScheduleProjection(), BulletinProjection(), SkillProjection()]
