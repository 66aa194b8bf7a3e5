"""What several commands share: parsing, printing, consent."""
