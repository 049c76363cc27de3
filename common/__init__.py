"""What every package needs and none of them owns: atomic files, locks. Imports none of them."""
