"""What follows from an exchange: rules and one model call that update relationships, memories and the scene."""
