"""The places where people reach characters: web, messengers, APIs, terminal. No surface imports another."""
