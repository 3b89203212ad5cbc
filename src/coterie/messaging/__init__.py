"""Messages between platforms and modes: inbox, routing, commands, rooms, files and delivery."""
