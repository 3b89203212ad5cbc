"""The list of chats: pinned, tagged, archived and deleted ones, and the tree of forks."""
