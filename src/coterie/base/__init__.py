"""What every room stands on: errors, ids, time, configuration and logs. Imports nothing of ours."""
