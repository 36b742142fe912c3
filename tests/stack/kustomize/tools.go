//go:build tools

// What this module pins. To take another version: `go get sigs.k8s.io/kustomize/kustomize/v5@<version>`, `go mod tidy`.
package tools

import _ "sigs.k8s.io/kustomize/kustomize/v5"
