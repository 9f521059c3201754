package policyfile

// ReadRegular reads a file without the check before.
var ReadRegular = readRegular
