"""The four ways to use characters (story, draft, crowd, desk) and remote agents. No mode imports another."""
