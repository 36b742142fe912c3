package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"example.com/first/carillon"
)

func main() {
	configuration := carillon.NewConfiguration()
	configuration.Servers = carillon.ServerConfigurations{{URL: os.Getenv("CARILLON_URL")}}
	jobs := carillon.NewAPIClient(configuration).JobsAPI
	ctx := context.WithValue(context.Background(), carillon.ContextAccessToken, os.Getenv("CARILLON_TOKEN"))
	appId := os.Getenv("APP_ID")

	body := carillon.NewJobBody("apns")
	body.SetFilters(map[string]string{"locale": "pt"})
	body.SetContext(map[string]interface{}{"name": "Ana"})
	job, _, err := jobs.CreateJob(ctx, appId).Template("welcome").IdempotencyKey("my-first-job").JobBody(*body).Execute()
	for err == nil && (job.State == carillon.JOBSTATE_SCHEDULED || job.State == carillon.JOBSTATE_RUNNING) {
		time.Sleep(500 * time.Millisecond)
		job, _, err = jobs.GetJob(ctx, appId, job.Id).Execute()
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s is %s: %d sent, %d failed\n", job.Id, job.State, job.Sent, job.Failed)
}
