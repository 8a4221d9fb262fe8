"""`tailrace cluster verify`: checks what a cluster stores outside its processes, and says what would be lost."""
