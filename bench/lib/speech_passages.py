"""Connected speech of streamers, minutes long.

The labelled sentences are isolated, which is harder for a recogniser than connected speech. Nothing was tuned on these
passages, and none was changed or removed after measuring.
"""

PASSAGES = (
    "Good evening everybody and welcome back to the stream. Tonight we are going to finish the third chapter of the "
    "game, and after that I will read your letters and answer a few questions about the garden.",
    "Last week somebody asked me how long it takes to bake a loaf of bread. It takes about three hours if you count "
    "the time the dough needs to rest, and most of that you can spend reading or walking the dog.",
    "When I was a child we lived in a small house near the harbour. Every morning the fishermen came back with their "
    "boats, and my grandmother went down to buy what they had caught during the night.",
    "I think the best way to learn a language is to talk with people who speak it every day. Books are useful, but "
    "nobody learned to swim by reading about water.",
    "The old road goes through the forest and over the hill. From the top you can see the lake, the church and the "
    "long white bridge that they built two years ago.",
    "We have almost reached our goal for this month, and I want to thank everyone who helped. The money goes to the "
    "animal shelter, and next week I will show you the new dogs.",
    "All right chat, here is the plan. We sneak past the two guards, we take the key from the table, and then we run "
    "back to the boat before anybody notices. If it goes wrong we blame the parrot.",
    "I have died to this boss eleven times now. The trick is to stay close to him and roll to the left when he lifts "
    "the hammer. Okay, here he comes. Left, left, and now we hit him. No, too early, and I am dead again.",
    "Now we chop two onions and a bit of garlic and put them in the pan with some butter. Keep the fire low, we do not "
    "want any colour yet. While that cooks, tell me what you had for dinner tonight.",
    "This song is one that my father used to play on Sundays. It only has four chords, so it is a good one to start "
    "with. I will play it slowly first, and then we do the whole thing together at full speed.",
    "So I opened the program this morning and nothing worked. It turned out that somebody had changed a single line "
    "last night, and that line was used in about forty places. We found it after lunch, and then we wrote a test.",
    "Thank you for the kind words, I read every message even when I do not answer. Somebody wants to know whether the "
    "cat is still here. Yes, she is asleep on the printer, as always, and she does not care about any of you.",
    "The map says that there should be a village behind these mountains. I do not see a village. I see a goat and a "
    "broken wagon. Maybe we are holding the map upside down. Does anyone remember which way the river went?",
    "Before we begin, a few words about tomorrow. There will be no stream because I have to take the train to my "
    "sister, but on Friday we are back at eight, and we will start the new game that you voted for.",
    "Look at this view. You can see the whole valley from up here, and the snow on the other side. I walked for five "
    "hours to get here and my feet hurt, but I would do it again tomorrow without thinking twice.",
    "He says he will give us the sword if we bring him three blue mushrooms. We have two, and I ate the other one an "
    "hour ago because I thought it would heal me. Well, back into the cave we go, and this time I eat nothing.",
)
