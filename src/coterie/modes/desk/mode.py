"""What the desk adds to the store."""

from __future__ import annotations

from coterie.kernel import View
from coterie.modes.desk.bulletins import BulletinBoard
from coterie.modes.desk.office import Office
from coterie.modes.desk.skills import SkillSwitches
from coterie.modes.desk.timetable import Timetable


def views() -> list[View]:
    return [Office(), Timetable(), BulletinBoard(), SkillSwitches()]
