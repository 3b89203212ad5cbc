"""What every page needs: layout, security, dependencies, live updates."""
