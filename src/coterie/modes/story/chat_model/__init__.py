"""How models write in a chat: sampler presets, values and notes, per chat and per character."""
