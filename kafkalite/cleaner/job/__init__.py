"""The plan, the job and the messages of one cleaning, as values. Imports log.segment, config, common."""
