// Package vringtest builds guest memory, rings and hostile chains for tests.
package vringtest
