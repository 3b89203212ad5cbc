"""Compression of payloads and shared texts with a fixed dictionary, which makes short JSON small too.

A compressed value is a blob: the number of the dictionary, then raw deflate. Values that do not become smaller stay
text. The dictionaries are part of the file format: one may be added, none may be changed.
"""

from __future__ import annotations

import zlib

from coterie.base.errors import Corrupt

_MIN_LENGTH = 96
"""Shorter texts are stored as they are."""

# Frequent words first, then the fields of frequent events: deflate refers more cheaply to what is near the end.
_DICTIONARY_1 = (
    " something nothing everything anything someone perhaps without another always never again before between thr"
    "ough because around against morning evening tonight tomorrow yesterday together enough almost already really"
    " should would could might think thought remember forget question answer friend mother father brother sister "
    "hands eyes water light night house door table window voice looked turned smiled nodded asked said says told "
    "tell know knew little great world while under after first right three place every where which there their th"
    "ese those other about being never still until since years time long down back over only even most made make "
    "many much like come came good want went give take took keep kept left look find found hand head room life wo"
    "rd work well with will when what were your you're don't didn't can't won't it's that's I'm I'll I've this th"
    "at then than them they have from into just here some very been does done more must also upon such each both "
    "same is in on at of or as an and are all any but by be for had has her him his how its if it me my no not no"
    "w off one our out own see she so the to two up us was we who why yes yet you. She looked at him. He looked a"
    "t her. “I don’t know,” she said. the . The . It is . In the , and the ing the ed the of the in the to the an"
    "d the on the at the for the with the from the You remember: Day 1 = It is Monday, Tuesday, Wednesday, Thursd"
    "ay, Friday, Saturday, Sunday, January February March April May June July August September October November D"
    'ecember 2026 "},{"verb":"","interruptible":true,"attention":"low","minutes":null},"attention":"","holding":['
    '],"status":""}}{"entity":"you","activity":{"container":"","slot":"","posture":"","action":{"verb":""{"id":""'
    ',"stream":"room:0","title":"","name":"","type":"","state":"done","why":"","error":"","reason":"","kind":"","'
    'to":[],"redo":false}{"drop":[[1,2]],"restore":[]}{"scene":"","owner":"","summary":"","significance":1}{"upto'
    '":,"summary":"{"minutes":5,"why":""}{"owner":"","ids":[""]}{"reply":"","text":" over the budget of , summary'
    ' instead"],"recalled":{"{"words":0.,"meaning":0.,"recency":0.,"significance":0.,"boost":1.0,"total":0.},"tri'
    'mmed":["turns (",tokens): {"reply":"","model":"embedded/","tokens":,"soft":,"hard":,"parts":[],"shared":[,"t'
    'iers":"mmmmmmmmssssssssnnnnnnnnnnnnnnnn{"world":"main","of":"","toward":"you","affinity_delta":0,"trust_delt'
    'a":0,"knowledge":[],"summary":null,"chat":"room:01K","when":"2026-01-01T00:00:00Z"}{"call":"01K","day":"2026'
    '-01-01","role":"narrative","role":"classifier","provider":"embedded","model":"","room":"room:01K","character'
    '":"","outcome":"answered","error":"","tokens_in":,"tokens_out":,"tokens_cached":0,"estimated":true,"estimate'
    'd":false,"usd_micros":0,"priced":"free","priced":"flat","first_token_ms":,"total_ms":}{"id":"01K","owner":"0'
    '1K","text":"","type":"observation","scene":"01K","speaker":"","told_by":null,"witnesses":["01K","you"],"abou'
    't":[],"sources":["01K"],"happened":"2026-01-01T00:00:00Z","significance":1,"confidence":1.0,"reliability":1.'
    '0,"pinned":false,"private":false,"disclosure":"people"}{"turn":"01K","author":"you","text":"","segments":[{"'
    'kind":"action","text":""},{"kind":"dialogue","text":""}],"to":[],"present":["you","01K"],"sent":null}{"reply'
    '":"01K","speaker":"01K","answers":"01K","to":[],"present":["you","01K"],"sent":null}{"reply":"01K","text":""'
    ',"truncated":false,"why":"","status":null,"model":"embedded/"}'
).encode()
_DICTIONARIES = {1: _DICTIONARY_1}
_CURRENT = 1
_compressor = zlib.compressobj(6, zlib.DEFLATED, -14, 6, zdict=_DICTIONARIES[_CURRENT])
"""Copied for each text: loading the dictionary takes longer than compressing. The window of 16 KB and the small tables
are enough for short texts, and quicker to copy."""


def compress(text: str) -> str | bytes:
    """The text itself, or a blob that is smaller."""
    if len(text) < _MIN_LENGTH:
        return text
    plain = text.encode()
    packer = _compressor.copy()
    packed = bytes((_CURRENT,)) + packer.compress(plain) + packer.flush()
    return packed if len(packed) < len(plain) else text


def decompress(stored: str | bytes) -> str:
    """The text that was given to `compress`."""
    if isinstance(stored, str):
        return stored
    try:
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS, zdict=_DICTIONARIES[stored[0]])
        plain = unpacker.decompress(stored[1:]) + unpacker.flush()
        if not unpacker.eof:
            raise zlib.error("cut short")
        return plain.decode()
    except (KeyError, IndexError, zlib.error, UnicodeDecodeError) as error:
        raise Corrupt(
            "A compressed text in the database cannot be read.",
            "Run `coterie verify`; if it fails, restore the latest good backup with `coterie restore`.",
        ) from error
