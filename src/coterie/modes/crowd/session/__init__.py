"""An evening in a room: played live, simulated, or played again. C17"""
