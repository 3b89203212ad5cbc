"""Documents in Git repositories: reading (`repository`) and writing (`committer`)."""
