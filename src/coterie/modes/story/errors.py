"""What a person may have got wrong in a story.

CoterieError
└── BadEdit          a correction by hand that does not fit; nothing was changed
"""

from __future__ import annotations

from coterie.base.errors import CoterieError


class BadEdit(CoterieError):
    http_status = 422
