package checkpoint

// CheckName says what a manifest with such a file name is found to be.
func CheckName(name string) error { return (&manifest{Files: []file{{Name: name}}}).check() }
