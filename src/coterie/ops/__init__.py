"""Operations: backups and snapshots, health checks, metrics, and editing of settings."""
