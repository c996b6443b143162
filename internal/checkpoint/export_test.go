package checkpoint

// CheckName checks a manifest with such a file name.
func CheckName(name string) error { return (&manifest{Files: []file{{Name: name}}}).check() }
