package model

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
)

// Trial is one row of another system's tests, as it was put to the model.
type Trial struct {
	Name     string
	Policies []File
	Messages []Message
	Records  [][]Record // by message
}

// ReadTrials reads the trials in a file.
func ReadTrials(path string) ([]*Trial, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read trials: %w", err)
	}
	defer func() { _ = f.Close() }()
	r, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("read trials: %w", err)
	}
	var list []*Trial
	if err := json.NewDecoder(r).Decode(&list); err != nil {
		return nil, fmt.Errorf("read trials: %w", err)
	}
	return list, nil
}
