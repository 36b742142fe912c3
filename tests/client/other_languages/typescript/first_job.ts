import { Configuration, JobsApi } from './carillon/index.js';

const { CARILLON_URL, CARILLON_TOKEN, APP_ID = '' } = process.env;
const jobs = new JobsApi(new Configuration({ basePath: CARILLON_URL, accessToken: CARILLON_TOKEN }));

let job = await jobs.createJob({
  appId: APP_ID,
  template: 'welcome',
  idempotencyKey: 'my-first-job',
  jobBody: { service: 'apns', filters: { locale: 'pt' }, context: { name: 'Ana' } },
});
while (job.state === 'scheduled' || job.state === 'running') {
  await new Promise((wake) => setTimeout(wake, 500));
  job = await jobs.getJob({ appId: APP_ID, jobId: job.id });
}
console.log(`${job.id} is ${job.state}: ${job.sent} sent, ${job.failed} failed`);
