// Package diff compares two policy sets field by field.
//
// Content is compared in the canonical encoding, so comments, the order of files and
// notation make no difference. What other policies would have decided is package whatif's.
package diff
