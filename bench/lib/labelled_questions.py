"""Sentences of streamers, labelled by hand: whether they ask the chat something (1) or not (0).

Written before the heuristics were tuned and split by a hash of the sentence: one half for tuning, the other held out.
They include rhetorical questions, questions to people in the game, sentences about the chat, and questions without a
question mark. The fresh ones were written after tuning and are all held out.
"""

from __future__ import annotations

import hashlib

_ASKED = """
chat, should I open the left door or the right door?
okay chat, which one do we take, the sword or the lantern?
do you guys want me to read the whole letter?
what do you think, is he lying to us?
has anyone here finished this game before?
who here remembers the first boss?
chat, what was the name of that village again?
should I sell the ring or keep it?
how many of you would have jumped there?
what should we cook next week?
does anybody know how to get past the guard?
is the music too loud for you?
can you all hear me?
chat, am I missing something obvious here?
what's your favourite soup, by the way?
where are you all watching from tonight?
do you think we can make it before midnight?
would you rather fight one big bear or ten small ones?
anyone got a better idea?
tell me in chat, tea or coffee?
so what do we name the dog, chat?
have you ever seen a ghost that small?
do we go back for the key, yes or no?
what do you all say, one more try?
chat, is that a mushroom or a hat?
let me know what you want to see tomorrow.
tell me which door you would take.
give me a number between one and ten, chat.
any suggestions for the next song?
did anyone catch what the old man said?
who wants to see me try that without armour?
guys, which colour should the boat be?
are we sure about this, chat?
what would you do in my place?
chat, do I trust the wizard?
what time is it where you are?
should we start with the onions or the garlic?
do you want the long story or the short one?
is anyone else hungry now?
help me out here, chat, what does this lever do?
how are you all doing tonight?
which of these three looks the most haunted to you?
chat, left or right?
left or right, chat, quickly
okay vote now, boss or bed
what did I do with the map, does anyone remember?
do you remember when I fell into this exact pit?
is it just me or is that cat following us?
who is your favourite character so far?
can somebody explain the crafting to me?
could you all check if the picture is stuttering?
would anyone like a second run tonight?
shall we do one more level, what do you say?
what are we thinking, chat, stealth or loud?
any of you play an instrument?
type one if you want the cave and two if you want the tower
have any of you baked bread without yeast?
chat, did I already open this chest?
does this jacket look good on him, be honest?
do I press the red button, chat?
what is the word I am looking for, chat?
how would you solve this one?
so, who thinks the butler did it?
are you ready for the last fight?
remind me, chat, where did we leave the horse?
"""

_NOT_ASKED = """
okay, good evening everyone, welcome back to the cave
last time we found the map behind the clock
right, the left door it is
there is a lever, and a very small ghost in the attic
oh no, I fell into the pit again
why would anybody put a lever there?
why does this always happen to me?
how did I miss that?
what was that?
what is that supposed to mean?
who put this wall here?
really? again?
are you kidding me?
the guard says, who goes there?
he asks her, will you marry me, and then the bridge collapses
the sign says, do you dare to enter?
the riddle is, what walks on four legs in the morning?
hello little frog, what are you doing here?
where is the exit, where is it, there it is
where did he go?
what a jump that was
what a beautiful room
how lovely is that
I wonder what is behind that curtain
I do not know which door is the right one
chat is going very fast tonight
thank you chat, you were right about the key
chat told me to go left and chat was wrong
I love this chat
you guys are the best
everyone said this boss was easy
somebody in chat said there is a secret passage
I should have saved the potion
we should go back to the village and rest
you should always carry a lamp down here
I asked my sister whether she wanted to play and she laughed
when I was twelve I asked everybody what the moon was made of
do not touch the red button
do it, do it, do the jump
have a seat, the show is about to begin
can do, no problem
is what it is
would have been nice to know earlier
could be worse, could be raining
let me read this quietly
let me think about that for a second
that would be telling
yes, first try, we did it
let's go, finally, what a fight
no way, no way that worked
and that is how you cook an egg
now we add the flour, slowly, and we stir
the recipe says two spoons but I take three
what I like about this game is the rain
how this works is simple, you pull and you wait
who would have thought that the door was painted on
which is why I never trust a smiling wizard
why not, let's try it
what if I just walk around him, yes, that works
how hard can it be
is there a key in here, no, is there a key in here, yes
should be here somewhere
does not matter, we try again
am I dead, no, I am not dead
oh come on, are you serious right now?
did he just eat my sandwich?
do I look like somebody who reads manuals?
who needs armour anyway?
what do they want from me, these bats?
the merchant wants to know what we are selling
anyone can do that with a bit of practice
everybody duck, here comes the boulder
anybody who says otherwise is selling something
and would you look at that, the sun comes up
do you mind, little bat, I am trying to think
tell me why, said the king, and nobody told him
one more time and then I am going to bed
I think we know what to do with that
so that was the whole secret, a spoon
see you all next week, sleep well
"""


_FRESH_ASKED = """
chat, what should I name this horse?
okay everyone, do we fight the dragon or do we run?
has anybody here been to Lisbon?
which soup do you want to see first, tomato or pumpkin?
what do you guys think about the new map?
do you want to hear the end of that story?
should I wear the red hat for the wedding, chat?
who of you has a dog?
can you hear the rain in the background?
how late is it for you right now?
tell me your favourite film in chat.
chat, is this the same room as before?
would you eat that?
what did you have for breakfast today?
does anyone know what this symbol means?
do I go up the stairs or down into the cellar, chat?
are you enjoying the game so far?
any ideas what this key could open?
so chat, who is the murderer?
let me know if the music is too loud.
did you see that shadow on the wall?
am I the only one who likes this song?
shall we try the hard mode, what do you say?
where would you hide the treasure?
have you read the book, and is it better than the film?
"""

_FRESH_NOT_ASKED = """
what an evening this has been so far
the baker asks me whether I want rye or wheat
who would build a castle in a swamp?
I think the bridge is on the other side
you all were so kind to me last week
somebody left a sandwich on the throne
how on earth did he survive that?
do your worst, little spider
is that so, mister merchant?
my brother always asks me when I will get a real job
the question is not whether but when
chat has been right about everything tonight
where there is smoke there is fire
can't believe it, we made it with one heart left
have no fear, I have done this before
why is the cat on the stove?
the old woman whispers, have you seen my son?
if anyone had told me that I would have laughed
would you mind, sir, I am trying to read
thanks everyone for the birthday wishes
I asked the guard for directions and he fell asleep
when do I ever get to finish a sentence
okay, we put the flour in first and then the eggs
what they did to this village is terrible
no idea, we will find out together
"""


def _held_out(sentence: str) -> bool:
    return hashlib.sha256(sentence.encode()).digest()[0] % 2 == 1


def labelled(*, held_out: bool) -> list[tuple[str, bool]]:
    """Sentences and whether they ask the chat: the half to tune on, or the half to measure on."""
    fresh = [*_lines(_FRESH_ASKED, True), *_lines(_FRESH_NOT_ASKED, False)] if held_out else []
    everything = [*_lines(_ASKED, True), *_lines(_NOT_ASKED, False)]
    return [(line, asks) for line, asks in everything if _held_out(line) == held_out] + fresh


def _lines(text: str, asks: bool) -> list[tuple[str, bool]]:
    return [(line, asks) for line in text.strip().splitlines()]
