"""The parts of `tailrace demo`: a server of real text, the counts of the job, and the check of these counts."""
